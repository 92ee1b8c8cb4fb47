// The part of DLPack that FlashCore reads (github.com/dmlc/dlpack, version 1.3): the layout of
// tensors and of the table of C functions that frameworks offer on their array types.
#pragma once

#include <cstdint>

namespace flashcore::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

enum TypeCode : std::uint8_t {
  signed_integer = 0,
  unsigned_integer = 1,
  real = 2,
  bfloat = 4,
  boolean = 6
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: dense
  std::uint64_t byte_offset;
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// What a capsule named "dltensor" holds.
struct ManagedTensor {
  Tensor tensor;
  void* owner;
  void (*deleter)(ManagedTensor*);
};

/// What a capsule named "dltensor_versioned" holds.
struct VersionedTensor {
  Version version;
  void* owner;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

constexpr std::uint64_t read_only_flag = 1;

/// What the capsule type(array).__dlpack_c_exchange_api__ holds. Functions return 0, or -1 with a
/// Python exception set; the caller has the GIL.
struct ExchangeApi {
  Version version;
  const ExchangeApi* older;
  void* allocate;
  void* import_owned;
  void* export_owned;
  int (*borrow)(void* array,
                Tensor* out);  ///< may be null; valid until the caller returns to Python
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

}  // namespace flashcore::dlpack
