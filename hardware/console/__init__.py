"""The operator's console: a page in the browser that shows, stops, labels and takes over."""
