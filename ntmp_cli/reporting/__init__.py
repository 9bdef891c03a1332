"""Summary rows to tables, curves to figures: functions that return text or bytes and touch no disk."""
