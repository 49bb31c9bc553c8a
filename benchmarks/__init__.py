"""What is measured of wallscope: each script writes its table into the docs."""
