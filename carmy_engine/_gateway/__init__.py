"""The tools of another executor, offered as this application's own."""
