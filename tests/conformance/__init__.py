"""What every backend must hold, and what others are compared by."""
