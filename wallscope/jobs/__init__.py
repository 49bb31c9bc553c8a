"""Many exports, one answer: each is analysed by itself, side by side; then the ranks are one job."""
