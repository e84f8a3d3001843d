"""What a team keeps in a store around its runs: schedules, webhooks, remarks, and what is cleared."""
