"""The messages of RocketMQ 5's clients as classes, made from `rocketmq.binpb`, which is the compiled `rocketmq.proto`.

    rocketmq.proto ── protoc, in the tests ──► rocketmq.binpb, messages.pyi ── import ──► classes in a pool of their own

The pool is private: an official client in the same process registers the same names in the global one. Code that protoc generates
would use the global pool, and be tied to the versions of the library that fit its generator.
"""

from enum import IntEnum
from pkgutil import get_data
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_FILE: Final = "rocketmq.proto"
_compiled = get_data("pocketmq.proxy", "rocketmq.binpb")
assert _compiled is not None
_pool = DescriptorPool()
for _file in FileDescriptorSet.FromString(_compiled).file:
    _pool.AddSerializedFile(_file.SerializeToString())
_own = _pool.FindFileByName(_FILE)

SERVICE: Final = "apache.rocketmq.v2.MessagingService"
METHODS: Final = {
    method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
    for method in _own.services_by_name["MessagingService"].methods
}

globals().update({name: GetMessageClass(one) for name, one in _own.message_types_by_name.items()})
globals().update(
    {
        name: IntEnum(name, {value.name: value.number for value in one.values})
        for name, one in _own.enum_types_by_name.items()
    }
)
Timestamp = GetMessageClass(_pool.FindMessageTypeByName("google.protobuf.Timestamp"))
Duration = GetMessageClass(_pool.FindMessageTypeByName("google.protobuf.Duration"))
