"""The world of one partition: three brokers, their logs, and the controller that decides who leads."""
