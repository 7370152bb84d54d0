"""The array type of code that runs in thousands of worlds (torch) and on a robot (numpy)."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A numpy array or a torch tensor, float32 unless said otherwise.

Functions that take one compute through `array_api_compat`, allocate on the array's own device and
return the type they were given. The array standard has no static type that both satisfy, hence Any.
"""
