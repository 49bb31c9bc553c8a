"""STAGE: answers to sections: what is shown and in which words, for every medium at once."""
