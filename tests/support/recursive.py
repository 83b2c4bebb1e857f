"""A recursive union of models whose arms contain the union again."""

from __future__ import annotations

from pydantic import BaseModel


class Add(BaseModel):
    left: Sum
    right: Sum


class Multiply(BaseModel):
    left: Sum
    right: Sum
    factor: int


Sum = int | Add | Multiply
Add.model_rebuild()
Multiply.model_rebuild()
