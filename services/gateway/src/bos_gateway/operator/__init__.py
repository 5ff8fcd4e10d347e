"""What operators see and do: OperatorService here, commands such as `bos doctor` in `commands`."""
