"""Teleoperation of twins and robots: sessions, simulated people, demonstrations."""
