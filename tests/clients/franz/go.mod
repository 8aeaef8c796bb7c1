module tribunal/franz

go 1.26.8

require github.com/twmb/franz-go v1.22.2 // indirect
