"""The words of Tiercel as frozen dataclasses; imports nothing else of ours."""
