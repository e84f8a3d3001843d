"""The parcel is found when its depot is reported; a wrong report ends the episode."""


def validate(env):
    reported = env.get_agent_output("DEPOT")
    if reported is None:
        return {"ok": False, "message": "nothing is reported yet"}
    if reported == env.get_hidden_state("depot"):
        return {"ok": True, "message": "found"}
    return {"ok": False, "terminal": True, "failure_reason": f"the parcel is not at {reported}"}
