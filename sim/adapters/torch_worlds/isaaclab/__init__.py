"""Isaac Lab: started, asked for final observations, and shared within a process."""
