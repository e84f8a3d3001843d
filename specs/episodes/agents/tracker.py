"""Follows the parcel from book to book."""


class Tracker:
    def reset(self, task_spec):
        self.depot = "start"
        self.observation = {}

    def observe(self, observation):
        self.observation = observation

    def act(self):
        result = self.observation.get("last_action_result") or {}
        book = result.get("book", "").strip()
        if book.endswith("here"):
            return {"type": "report", "args": {"key": "DEPOT", "value": self.depot}}
        if book:
            self.depot = book.rsplit(" ", 1)[-1]
        return {"type": "read_book", "args": {"depot": self.depot}}
