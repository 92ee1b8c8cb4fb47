/* FlashCore from C, and from every language that calls C: a kernel from a spec or from a bundle,
 * compiled, described and launched.
 *
 * Functions that can fail return an fc_status and leave their results alone when they do;
 * fc_last_error tells what happened to the calling thread. Objects are made by functions that end
 * in a pointer to a pointer and freed by fc_..._free, which takes NULL. A kernel and a bundle may
 * be used by several threads at once. Text is UTF-8, ends in a zero, and belongs to the object that
 * it was asked of. Structs only grow at their end, together with FC_ABI_VERSION.
 */
#ifndef FLASHCORE_H
#define FLASHCORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FC_API __attribute__((visibility("default")))

#define FC_ABI_VERSION 1
/* That of the library, which has to be the header's. */
FC_API int fc_abi_version(void);
/* "0.1.0" */
FC_API const char* fc_version(void);

typedef enum fc_status {
  FC_OK = 0,
  FC_SPEC_ERROR = 1,     /* a spec, schedule or target that cannot be; arrays that do not fit */
  FC_COMPILE_ERROR = 2,  /* no compiler, it refuses, or compiling is forbidden */
  FC_CACHE_ERROR = 3,    /* a bundle or a cache directory that cannot serve */
  FC_DEVICE_ERROR = 4,   /* the driver, the GPU, or where arrays lie */
  FC_INTERNAL_ERROR = 5, /* a bug of FlashCore */
  FC_ARGUMENT_ERROR = 6  /* NULL, or a number out of range, given to one of these functions */
} fc_status;

/* The last failure of the calling thread, in four parts: what, where if known, why, what would
 * work. Valid until the thread's next call. */
typedef struct fc_error {
  fc_status status;
  const char* what;
  const char* why;
  const char* fix;
  const char* file; /* of the author, or "" */
  int32_t line;
} fc_error;
FC_API const fc_error* fc_last_error(void);

typedef struct fc_kernel fc_kernel;
typedef struct fc_bundle fc_bundle;

/* --- kernels ---------------------------------------------------------------------------------- */

/* Attention for a spec as JSON, as AttentionSpec.to_json() writes it ({"head_dim": 64}), and a
 * target
 * ("sm_90a"). `schedule` is JSON, or NULL for the one that ships. Generates code and compiles
 * nothing yet. */
FC_API fc_status fc_kernel_from_spec(const char* spec, const char* target, const char* schedule,
                                     fc_kernel** kernel);
FC_API void fc_kernel_free(fc_kernel* kernel);

/* From a bundle, the cache, or compiled by this process's NVRTC; needs no GPU. Where the schedule
 * was not given, and its code does not fit, the next safer one. */
FC_API fc_status fc_kernel_compile(fc_kernel* kernel);
/* Loads the code for a GPU, so that the first launch does not; a launch in a graph's capture needs
 * it. */
FC_API fc_status fc_kernel_prepare(fc_kernel* kernel, int32_t device);

FC_API const char* fc_kernel_name(const fc_kernel* kernel);
FC_API const char* fc_kernel_target(const fc_kernel* kernel);
/* CUDA C++. */
FC_API const char* fc_kernel_source(fc_kernel* kernel);
/* The machine code, an ELF file; compiles it if need be. */
FC_API fc_status fc_kernel_cubin(fc_kernel* kernel, const void** bytes, size_t* size);

typedef enum fc_dtype {
  FC_F16 = 0,
  FC_BF16 = 1,
  FC_F32 = 2,
  FC_F64 = 3,
  FC_I32 = 4,
  FC_I64 = 5,
  FC_I16 = 6,
  FC_I8 = 7,
  FC_U8 = 8,
  FC_I1 = 9 /* conditions, a byte each */
} fc_dtype;

#define FC_MAX_RANK 5

/* An argument of the kernel. Dimensions of a fixed size have it in `size`; of the others `size` is
 * -1 and `extent` names the length, which is the same wherever the name is. */
typedef struct fc_tensor_info {
  const char* name;
  int32_t dtype;
  int32_t rank;
  int32_t output;
  int32_t alignment; /* bytes that must divide the address */
  int64_t size[FC_MAX_RANK];
  const char* extent[FC_MAX_RANK];
} fc_tensor_info;
FC_API size_t fc_kernel_tensor_count(const fc_kernel* kernel);
FC_API fc_status fc_kernel_tensor(const fc_kernel* kernel, size_t index, fc_tensor_info* info);

typedef struct fc_scalar_info {
  const char* name;
  int32_t dtype;    /* FC_F32 or FC_I32 */
  int32_t positive; /* only positive values are taken */
} fc_scalar_info;
FC_API size_t fc_kernel_scalar_count(const fc_kernel* kernel);
FC_API fc_status fc_kernel_scalar(const fc_kernel* kernel, size_t index, fc_scalar_info* info);

/* --- launches --------------------------------------------------------------------------------- */

#define FC_CPU (-1)

typedef struct fc_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int32_t device;   /* ordinal of the GPU, or FC_CPU */
  int32_t reserved; /* 0 */
  int64_t shape[FC_MAX_RANK];
  int64_t strides[FC_MAX_RANK]; /* in elements */
} fc_tensor;

typedef struct fc_scalar {
  int32_t dtype;
  union {
    float f32;
    int32_t i32;
  } value;
} fc_scalar;

/* Tensors and scalars in the order of the kernel's arguments. On a GPU the work is queued on
 * `stream` (a CUstream or cudaStream_t, NULL for the default one) and not waited for. Arrays in CPU
 * memory are computed by the emulator before the function returns; a kernel of a bundle runs on
 * GPUs alone, as text from a file is never run on the host. */
FC_API fc_status fc_kernel_launch(fc_kernel* kernel, const fc_tensor* tensors, size_t tensor_count,
                                  const fc_scalar* scalars, size_t scalar_count, void* stream);

/* For who launches the machine code by other means (cuLaunchKernel): the kernel has one parameter,
 * a struct of `parameter_bytes`, passed by value. fc_kernel_bind checks the arguments and fills it,
 * except for tensor maps and the counter of tiles, which only fc_kernel_launch makes: kernels that
 * need one of them are refused. */
typedef struct fc_launch {
  const char* entry; /* what the machine code calls the kernel */
  uint32_t grid[3];
  uint32_t cluster; /* blocks of a cluster, along x */
  uint32_t threads; /* of a block, along x */
  uint32_t shared_bytes;
  uint32_t parameter_bytes;
} fc_launch;
FC_API fc_status fc_kernel_bind(const fc_kernel* kernel, const fc_tensor* tensors,
                                size_t tensor_count, const fc_scalar* scalars, size_t scalar_count,
                                void* parameters, size_t room, fc_launch* launch);

/* How that struct is laid out: what stands at which offset. */
typedef enum fc_field_kind {
  FC_POINTER = 0,     /* 8 bytes: the address of tensor `index` */
  FC_STRIDE = 1,      /* 8 bytes: elements between neighbours of tensor `index` along `dim` */
  FC_EXTENT = 2,      /* 4 bytes: the length that `name` names */
  FC_SCALAR = 3,      /* 4 bytes: scalar `index` */
  FC_TENSOR_MAP = 4,  /* 128 bytes: a CUtensorMap of tensor `index` */
  FC_TILE_COUNTER = 5 /* 4 bytes */
} fc_field_kind;
typedef struct fc_field {
  int32_t kind;
  int32_t offset;
  int32_t index;
  int32_t dim;
  const char* name; /* of the tensor, the length or the scalar */
} fc_field;
FC_API size_t fc_kernel_field_count(const fc_kernel* kernel);
FC_API fc_status fc_kernel_field(const fc_kernel* kernel, size_t index, fc_field* field);

/* --- schedules chosen at launch --------------------------------------------------------------- */

/* Attention for a spec, every launch under the schedule that is predicted to be the fastest for its
 * batch, heads and lengths. Thread-safe. Where the kernel that a launch wants is not compiled yet,
 * another one serves, and that one is compiled in the background for later launches; the first launch
 * of all waits. */
typedef struct fc_dispatcher fc_dispatcher;
FC_API fc_status fc_dispatcher_from_spec(const char* spec, const char* target,
                                         fc_dispatcher** dispatcher);
/* The same of the kernels that the bundle has, and no others: no code generation, no compiler. */
FC_API fc_status fc_dispatcher_from_bundle(const fc_bundle* bundle, const char* spec,
                                           const char* target, fc_dispatcher** dispatcher);
FC_API void fc_dispatcher_free(fc_dispatcher* dispatcher);

typedef struct fc_range {
  int64_t least, most;
} fc_range;
/* Launches with these sizes: batch and heads of the queries, rows of the queries and of the keys. */
typedef struct fc_problems {
  fc_range batch, heads, q_len, kv_len;
} fc_problems;
/* Makes every kernel that such launches may want, and loads it for a GPU unless that is FC_CPU: they
 * wait for nothing then, and can be captured into a graph. */
FC_API fc_status fc_dispatcher_prepare(fc_dispatcher* dispatcher, const fc_problems* problems,
                                       int32_t device);

/* As fc_kernel_launch. */
FC_API fc_status fc_dispatcher_launch(fc_dispatcher* dispatcher, const fc_tensor* tensors,
                                      size_t tensor_count, const fc_scalar* scalars,
                                      size_t scalar_count, void* stream);

/* The kernel that a launch with such tensors wants, of which the shapes count: for its source, its
 * machine code and its arguments, which all of them have in common. It is the dispatcher's, and not
 * to be freed. */
FC_API fc_status fc_dispatcher_kernel(fc_dispatcher* dispatcher, const fc_tensor* tensors,
                                      size_t tensor_count, fc_kernel** kernel);

/* --- bundles ---------------------------------------------------------------------------------- */

/* Checks the manifest, its signature, and who may have written the file. */
FC_API fc_status fc_bundle_open(const char* path, fc_bundle** bundle);
FC_API void fc_bundle_free(fc_bundle* bundle);

typedef struct fc_bundle_entry {
  const char* key;
  const char* kernel; /* the program's name and the target */
  const char* target;
  uint64_t bytes;
} fc_bundle_entry;
FC_API size_t fc_bundle_count(const fc_bundle* bundle);
FC_API fc_status fc_bundle_entry_at(const fc_bundle* bundle, size_t index, fc_bundle_entry* entry);
/* "ed25519:..." of who signed it, or NULL. */
FC_API const char* fc_bundle_signer(const fc_bundle* bundle);

/* A kernel from the bundle alone, everything in it checked: no code generation, no compiler. */
FC_API fc_status fc_kernel_from_bundle(const fc_bundle* bundle, const char* key,
                                       fc_kernel** kernel);
/* From now on fc_kernel_compile finds what the bundle holds. */
FC_API fc_status fc_bundle_use(const fc_bundle* bundle);

#ifdef __cplusplus
}
#endif
#endif
