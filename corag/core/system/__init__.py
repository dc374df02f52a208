"""What a process has of its machine: files, locks, cores and GPUs, installed packages."""
