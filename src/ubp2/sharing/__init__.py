"""What leaves a run: its policy as a file that needs no training code, and a folder for the Hugging Face Hub."""
