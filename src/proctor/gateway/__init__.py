"""The model gateway: agents call models through it and never see a provider's key."""
