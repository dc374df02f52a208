"""The commands, one file each: parse, call a lower layer, print."""
