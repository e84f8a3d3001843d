"""What a server does by itself for a team: scheduled runs, webhooks, and clearing what is old."""
