"""Named tuples of arrays that compiled functions receive as one address.

Numba passes a tuple by value: a function that takes the state would have more than a hundred arguments. Instances of a
class with the decorator :func:`by_reference` are passed as the address of their fields. Fields do not change during a
call. Each read is marked accordingly, so that the compiler moves it out of loops.
"""

from __future__ import annotations

from typing import Any, TypeVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

C = TypeVar("C", bound=type)


def by_reference(kind: C) -> C:
    """Let compiled functions receive the instances of a class of named tuples by reference."""
    typeof_impl.register(kind)(_reference_type)
    return kind


class Address(types.Type):  # type: ignore[misc]
    """Type of the address of a named tuple."""

    def __init__(self, content: types.NamedTuple) -> None:
        self.content = content
        super().__init__(f"Address({content})")

    @property
    def key(self) -> Any:
        """Content, which two equal types have in common."""
        return self.content

    def field(self, name: str) -> tuple[int, Any]:
        """Return place and type of a field."""
        place = self.content.fields.index(name)
        return place, self.content.types[place]


def _reference_type(value: Any, context: Any) -> Address:
    """Return the type of an instance; a nested tuple is stored inside the outer one."""
    kinds = [typeof_impl(each, context) for each in value]
    kinds = [kind.content if isinstance(kind, Address) else kind for kind in kinds]
    return Address(types.NamedTuple(kinds, type(value)))


@register_model(Address)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    """A pointer."""

    def __init__(self, manager: Any, kind: Address) -> None:
        super().__init__(manager, kind, manager[kind.content].get_value_type().as_pointer())


@unbox(Address)
def _unbox(kind: Address, value: Any, c: Any) -> NativeValue:
    """Write the fields to the stack of the caller. Numba never inlines the function that reads them into it."""
    content = c.unbox(kind.content, value)
    address = cgutils.alloca_once(c.builder, content.value.type)
    c.builder.store(content.value, address)

    def release() -> None:
        """Release the arrays after the call: numba does not see that the address refers to them."""
        if content.cleanup is not None:
            content.cleanup()
        if c.context.enable_nrt:
            c.context.nrt.decref(c.builder, kind.content, content.value)

    return NativeValue(address, is_error=content.is_error, cleanup=release)


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    """Types of the fields."""

    key = Address

    def generic_resolve(self, reference: Address, name: str) -> Any:
        """Return the type of a field."""
        if name not in reference.content.fields:
            return None
        _, kind = reference.field(name)
        return Address(kind) if isinstance(kind, types.NamedTuple) else kind


@lower_getattr_generic(Address)
def read_field(context: Any, builder: Any, kind: Address, address: Any, name: str) -> Any:
    """Emit the instructions that read a field."""
    place, field = kind.field(name)
    at = cgutils.gep_inbounds(builder, address, 0, place)
    if isinstance(field, types.NamedTuple):
        return at
    if not isinstance(field, types.Array):
        return load_field(builder, at)
    model, parts = context.data_model_manager[field], []
    owners = [model.get_field_position(name) for name in ("meminfo", "parent")]
    for number, part in enumerate(model.get_value_type().elements):
        source = cgutils.gep_inbounds(builder, at, 0, number)
        if number in owners:  # compiled functions do not own the array
            parts.append(cgutils.get_null_value(part))
        elif isinstance(part, ir.ArrayType):  # shape and strides
            entries = [cgutils.gep_inbounds(builder, source, 0, axis) for axis in range(field.ndim)]
            parts.append(cgutils.pack_array(builder, [load_field(builder, entry) for entry in entries]))
        else:
            parts.append(load_field(builder, source))
    return cgutils.pack_struct(builder, parts)


def load_field(builder: Any, address: Any) -> ir.Instruction:
    """Load a value that never changes."""
    value = builder.load(address)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value
