"""Customer support as a graph: a model reads, a person approves, a tool refunds. A script plays the model.

The approval may take days: ``python support.py start`` ends with the question, and ``python support.py approve ana`` goes on, in another
process. No effect happens twice, wherever a process is killed.
"""

from __future__ import annotations

import dataclasses
import sys

import trio

from carmy_engine import App, tool
from carmy_engine.graph import END, NodeContext, RunResult, StateGraph

THREAD = "ticket-7"


@tool(effect="read")
async def ask_model(prompt: str) -> str:
    """Ask the model. Its answer is recorded, so a resumed node decides the same."""
    return "refund" if "broken" in prompt else "answer"


@tool(effect="external_write")
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    print(f"refunding {cents} cents of {order}")
    return f"refund of {order}"


@tool(effect="external_write")
async def send_mail(text: str) -> None:
    """Write to the customer."""
    print(f"mail: {text}")


@dataclasses.dataclass(frozen=True)
class Ticket:
    """The state."""

    message: str
    order: str
    decision: str = ""
    approved_by: str | None = None
    reply: str = "We are looking into it."


async def triage(ticket: Ticket, ctx: NodeContext) -> Ticket:
    return dataclasses.replace(ticket, decision=await ctx.call(ask_model, prompt=ticket.message))


async def approve(ticket: Ticket, ctx: NodeContext) -> Ticket:
    return dataclasses.replace(ticket, approved_by=await ctx.interrupt(f"refund {ticket.order}?"))


async def pay(ticket: Ticket, ctx: NodeContext) -> Ticket:
    receipt = await ctx.call(refund, order=ticket.order, cents=1999)
    return dataclasses.replace(ticket, reply=f"{receipt}, approved by {ticket.approved_by}")


async def reply(ticket: Ticket, ctx: NodeContext) -> None:
    await ctx.call(send_mail, text=ticket.reply)


graph = (
    StateGraph(Ticket, name="support")
    .node("triage", triage, timeout=30, retries=2)
    .node("approve", approve)
    .node("pay", pay)
    .node("reply", reply)
    .branch("triage", lambda ticket: ticket.decision, {"refund": "approve", "answer": "reply"})
    .branch("approve", lambda ticket: "yes" if ticket.approved_by else "no", {"yes": "pay", "no": "reply"})
    .edge("pay", "reply")
    .edge("reply", END)
    .compile()
)
app = App("support").add(ask_model, refund, send_mail).store("sqlite:support.db")


async def main(command: str, person: str) -> None:
    """Start the run, or go on with the answer of a person."""
    async with app.open() as engine:
        support = graph.bind(engine)
        run: RunResult[Ticket]
        if command == "start":
            run = await support.run(THREAD, Ticket("My mouse is broken", "order-1001"))
        else:
            run = await support.resume(THREAD, answer=person)
        print(run.status.value, run.question or run.state.reply)


if __name__ == "__main__":
    words = [*sys.argv[1:], "start", ""]
    trio.run(main, words[0], words[1])
