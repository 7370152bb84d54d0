"""What differs between worlds of one robot with joints."""
