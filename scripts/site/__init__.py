"""The documentation as a site with search: `make docs`."""
