#!/bin/sh
# Builds etcd 3.5.2 of its modules with Go, as etcd-3.5.2 where Go puts programs (GOBIN, else GOPATH/bin); takes some minutes.
set -e
to=$(go env GOBIN)
[ -n "$to" ] || to=$(go env GOPATH)/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'END'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
END
go mod init tribunal.example/etcd
go get go.etcd.io/etcd/server/v3@v3.5.2
go mod tidy
go build -o "$to/etcd-3.5.2" .
echo "$to/etcd-3.5.2"
