"""`proctor race`: two sides become one plan, and a rule stops the run when its question is answered."""
