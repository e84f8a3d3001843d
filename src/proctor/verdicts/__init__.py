"""What the numbers say: domain logic over `analysis`, and the sentences that state it."""
