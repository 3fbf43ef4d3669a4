"""What `make bench` consists of, but for the workloads: runtimes, memory figures, reports."""
