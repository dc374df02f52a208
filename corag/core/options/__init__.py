"""What options are: classes of checked values, their names, help, command line and YAML."""
