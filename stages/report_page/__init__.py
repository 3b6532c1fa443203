"""What the report is made of: its pictures, its tables of numbers, and the page that holds them."""
