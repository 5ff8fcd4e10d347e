"""The documents service as a process, with the engines that people use; killed and filled up."""
