/* The C interface as a C program uses it: attention from a spec in the emulator, the layout of its
 * parameters, schedules that launches choose, bundles, and what is refused. The arguments are a
 * bundle of kernels for sm_80, and one of what launches of some lengths want on sm_90a.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flashcore.h"

static int failures = 0;
#define CHECK(holds)                                                                            \
  do {                                                                                          \
    if (!(holds)) {                                                                             \
      const fc_error* e = fc_last_error();                                                      \
      fprintf(stderr, "%s:%d: %s\n  last error: %s: %s\n", __FILE__, __LINE__, #holds, e->what, \
              e->why);                                                                          \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)

enum { HEADS = 2, LENGTH = 37, DIM = 32, COUNT = HEADS * LENGTH * DIM };

static uint16_t to_half_bits(float x) { /* bf16, by truncation; inputs are chosen to be exact */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float from_half_bits(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static fc_tensor view_of(void* data, int64_t length, int32_t device) {
  fc_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.dtype = FC_BF16;
  t.rank = 4;
  t.device = device;
  const int64_t shape[4] = {1, HEADS, length, DIM};
  const int64_t strides[4] = {HEADS * length * DIM, length * DIM, DIM, 1};
  memcpy(t.shape, shape, sizeof shape);
  memcpy(t.strides, strides, sizeof strides);
  return t;
}

static fc_tensor view(uint16_t* data) { return view_of(data, LENGTH, FC_CPU); }

/* q, k, v and the output, one behind the other. */
static uint16_t* make_arrays(void) {
  uint16_t* q = malloc(4 * COUNT * sizeof *q);
  uint16_t *k = q + COUNT, *v = k + COUNT, *out = v + COUNT;
  for (int i = 0; i < COUNT; ++i) {
    q[i] = to_half_bits((float)(i * 7 % 13 - 6) / 4);
    k[i] = to_half_bits((float)(i * 5 % 11 - 5) / 4);
    v[i] = to_half_bits((float)(i * 3 % 17 - 8) / 8);
    out[i] = 0x7fc0;
  }
  return q;
}

/* Of attention with a scale of 0.25. */
static double worst_error(const uint16_t* q) {
  const uint16_t *k = q + COUNT, *v = k + COUNT, *out = v + COUNT;
  double worst = 0;
  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < LENGTH; ++i) {
      double weights[LENGTH], sum = 0, expected[DIM] = {0};
      for (int j = 0; j < LENGTH; ++j) {
        double score = 0;
        for (int d = 0; d < DIM; ++d)
          score += (double)from_half_bits(q[(h * LENGTH + i) * DIM + d]) *
                   from_half_bits(k[(h * LENGTH + j) * DIM + d]);
        sum += weights[j] = exp(score * 0.25);
      }
      for (int j = 0; j < LENGTH; ++j)
        for (int d = 0; d < DIM; ++d)
          expected[d] += weights[j] / sum * from_half_bits(v[(h * LENGTH + j) * DIM + d]);
      for (int d = 0; d < DIM; ++d) {
        const double error = fabs(expected[d] - from_half_bits(out[(h * LENGTH + i) * DIM + d]));
        if (!(error <= worst)) worst = error;
      }
    }
  }
  return worst;
}

static void computes_attention(void) {
  fc_kernel* kernel = NULL;
  CHECK(fc_kernel_from_spec("{\"head_dim\": 32}", "sm_80", NULL, &kernel) == FC_OK);
  if (kernel == NULL) return;
  CHECK(strcmp(fc_kernel_name(kernel), "attention_forward") == 0);
  CHECK(strcmp(fc_kernel_target(kernel), "sm_80") == 0);
  CHECK(strstr(fc_kernel_source(kernel), "__global__") != NULL);
  CHECK(fc_kernel_tensor_count(kernel) == 4);
  CHECK(fc_kernel_scalar_count(kernel) == 1);
  fc_tensor_info info;
  CHECK(fc_kernel_tensor(kernel, 3, &info) == FC_OK);
  CHECK(strcmp(info.name, "o") == 0 && info.output && info.dtype == FC_BF16 && info.rank == 4);
  CHECK(info.size[3] == DIM && info.extent[3] == NULL && info.size[2] == -1);
  CHECK(strcmp(info.extent[2], "Sq") == 0);
  fc_scalar_info number;
  CHECK(fc_kernel_scalar(kernel, 0, &number) == FC_OK);
  CHECK(strcmp(number.name, "scale") == 0 && number.dtype == FC_F32 && number.positive);

  uint16_t* q = make_arrays();
  uint16_t *k = q + COUNT, *v = k + COUNT, *out = v + COUNT;
  const fc_tensor tensors[4] = {view(q), view(k), view(v), view(out)};
  fc_scalar scale;
  scale.dtype = FC_F32;
  scale.value.f32 = 0.25f;
  CHECK(fc_kernel_launch(kernel, tensors, 4, &scale, 1, NULL) == FC_OK);
  CHECK(worst_error(q) < 0.01);

  /* The parameters, for who launches by other means. */
  unsigned char parameters[4096];
  fc_launch launch;
  CHECK(fc_kernel_bind(kernel, tensors, 4, &scale, 1, parameters, sizeof parameters, &launch) ==
        FC_OK);
  CHECK(launch.threads > 0 && launch.grid[0] > 0 && launch.parameter_bytes > 0);
  int pointers = 0, scales = 0;
  for (size_t i = 0; i < fc_kernel_field_count(kernel); ++i) {
    fc_field field;
    CHECK(fc_kernel_field(kernel, i, &field) == FC_OK);
    if (field.kind == FC_POINTER) {
      void* address;
      memcpy(&address, parameters + field.offset, sizeof address);
      CHECK(address == tensors[field.index].data);
      ++pointers;
    } else if (field.kind == FC_SCALAR) {
      float value;
      memcpy(&value, parameters + field.offset, sizeof value);
      CHECK(value == 0.25f && strcmp(field.name, "scale") == 0);
      ++scales;
    }
  }
  CHECK(pointers == 4 && scales == 1);
  CHECK(fc_kernel_bind(kernel, tensors, 4, &scale, 1, parameters, 8, &launch) == FC_DEVICE_ERROR);

  /* Arguments that do not fit say which and why. */
  fc_tensor shorter[4];
  memcpy(shorter, tensors, sizeof shorter);
  shorter[2].shape[2] = LENGTH - 1;
  CHECK(fc_kernel_launch(kernel, shorter, 4, &scale, 1, NULL) == FC_SPEC_ERROR);
  CHECK(strlen(fc_last_error()->what) > 0 && strlen(fc_last_error()->fix) > 0);
  shorter[2] = tensors[2];
  shorter[2].rank = 9;
  CHECK(fc_kernel_launch(kernel, shorter, 4, &scale, 1, NULL) == FC_SPEC_ERROR);
  shorter[2] = tensors[2];
  shorter[2].dtype = 77;
  CHECK(fc_kernel_launch(kernel, shorter, 4, &scale, 1, NULL) == FC_SPEC_ERROR);
  CHECK(fc_kernel_launch(kernel, tensors, 3, &scale, 1, NULL) == FC_SPEC_ERROR);
  CHECK(fc_kernel_launch(kernel, NULL, 4, &scale, 1, NULL) == FC_ARGUMENT_ERROR);
  CHECK(fc_kernel_tensor(kernel, 4, &info) == FC_ARGUMENT_ERROR);
  fc_kernel_free(kernel);
  free(q);
}

static void refuses_what_cannot_be(void) {
  fc_kernel* kernel = NULL;
  CHECK(fc_kernel_from_spec("{\"head_dim\": 0}", "sm_80", NULL, &kernel) == FC_SPEC_ERROR);
  CHECK(fc_last_error()->status == FC_SPEC_ERROR && strlen(fc_last_error()->why) > 0);
  CHECK(fc_kernel_from_spec("{", "sm_80", NULL, &kernel) == FC_SPEC_ERROR);
  CHECK(fc_kernel_from_spec("{\"head_dim\": 64}", "sm_1", NULL, &kernel) == FC_SPEC_ERROR);
  CHECK(fc_kernel_from_spec("{\"head_dim\": 64}", "sm_80", "{\"stages\": -1}", &kernel) ==
        FC_SPEC_ERROR);
  CHECK(fc_kernel_from_spec(NULL, "sm_80", NULL, &kernel) == FC_ARGUMENT_ERROR);
  CHECK(fc_kernel_from_spec("{}", "sm_80", NULL, NULL) == FC_ARGUMENT_ERROR);
  CHECK(kernel == NULL);
  fc_kernel_free(NULL);
  fc_bundle_free(NULL);
  fc_bundle* bundle = NULL;
  CHECK(fc_bundle_open("/nowhere.fcb", &bundle) == FC_CACHE_ERROR && bundle == NULL);
}

static void reads_a_bundle(const char* path) {
  fc_bundle* bundle = NULL;
  CHECK(fc_bundle_open(path, &bundle) == FC_OK);
  if (bundle == NULL) return;
  CHECK(fc_bundle_count(bundle) >= 1 && fc_bundle_signer(bundle) == NULL);
  fc_bundle_entry entry;
  CHECK(fc_bundle_entry_at(bundle, 0, &entry) == FC_OK);
  CHECK(strcmp(entry.target, "sm_80") == 0);
  CHECK(fc_bundle_entry_at(bundle, 1000, &entry) == FC_ARGUMENT_ERROR);
  fc_kernel* kernel = NULL;
  CHECK(fc_kernel_from_bundle(bundle, "no such key", &kernel) == FC_CACHE_ERROR);
  CHECK(fc_kernel_from_bundle(bundle, entry.key, &kernel) == FC_OK);
  const void* cubin = NULL;
  size_t size = 0;
  CHECK(fc_kernel_cubin(kernel, &cubin, &size) == FC_OK);
  CHECK(size > 1000 && memcmp(cubin,
                              "\x7f"
                              "ELF",
                              4) == 0);
  CHECK(fc_kernel_tensor_count(kernel) >= 4);

  /* Its text is not run on the host. */
  uint16_t data[COUNT] = {0};
  const fc_tensor tensors[4] = {view(data), view(data), view(data), view(data)};
  fc_scalar scale;
  scale.dtype = FC_F32;
  scale.value.f32 = 1;
  CHECK(fc_kernel_launch(kernel, tensors, 4, &scale, 1, NULL) == FC_DEVICE_ERROR);
  CHECK(strstr(fc_last_error()->why, "not run on the host") != NULL);
  fc_kernel_free(kernel);

  /* Used, it serves kernels made from specs, without a compiler. */
  CHECK(fc_bundle_use(bundle) == FC_OK);
  fc_bundle_free(bundle);
  kernel = NULL;
  CHECK(fc_kernel_from_spec("{\"head_dim\": 32}", "sm_80", NULL, &kernel) == FC_OK);
  CHECK(fc_kernel_compile(kernel) == FC_OK);
  fc_kernel_free(kernel);
}

/* The kernel that a launch of so many rows wants. */
static fc_kernel* kernel_for(fc_dispatcher* dispatcher, int64_t length) {
  const fc_tensor one = view_of(NULL, length, FC_CPU), tensors[4] = {one, one, one, one};
  fc_kernel* kernel = NULL;
  CHECK(fc_dispatcher_kernel(dispatcher, tensors, 4, &kernel) == FC_OK);
  return kernel;
}

static void chooses_schedules(void) {
  fc_dispatcher* dispatcher = NULL;
  CHECK(fc_dispatcher_from_spec("{\"head_dim\": 32}", "sm_90a", &dispatcher) == FC_OK);
  if (dispatcher == NULL) return;
  fc_kernel *few = kernel_for(dispatcher, LENGTH), *many = kernel_for(dispatcher, 4096);
  CHECK(few == kernel_for(dispatcher, LENGTH) && few != many);
  CHECK(strcmp(fc_kernel_source(few), fc_kernel_source(many)) != 0);
  CHECK(fc_kernel_tensor_count(few) == 4 && fc_kernel_scalar_count(few) == 1);

  uint16_t* q = make_arrays();
  const fc_tensor tensors[4] = {view(q), view(q + COUNT), view(q + 2 * COUNT), view(q + 3 * COUNT)};
  fc_scalar scale;
  scale.dtype = FC_F32;
  scale.value.f32 = 0.25f;
  CHECK(fc_dispatcher_launch(dispatcher, tensors, 4, &scale, 1, NULL) == FC_OK);
  CHECK(worst_error(q) < 0.01);
  CHECK(fc_dispatcher_launch(dispatcher, tensors, 3, &scale, 1, NULL) == FC_SPEC_ERROR);
  CHECK(fc_dispatcher_launch(dispatcher, NULL, 4, &scale, 1, NULL) == FC_ARGUMENT_ERROR);
  CHECK(fc_dispatcher_launch(NULL, tensors, 4, &scale, 1, NULL) == FC_ARGUMENT_ERROR);
  free(q);

  /* Compiling is forbidden here. */
  fc_problems problems = {{1, 1}, {2, 2}, {1, 4096}, {1, 4096}};
  CHECK(fc_dispatcher_prepare(dispatcher, &problems, FC_CPU) == FC_COMPILE_ERROR);
  problems.q_len.least = 0;
  CHECK(fc_dispatcher_prepare(dispatcher, &problems, FC_CPU) == FC_SPEC_ERROR);
  CHECK(strstr(fc_last_error()->what, "q_len") != NULL);
  CHECK(fc_dispatcher_prepare(dispatcher, NULL, FC_CPU) == FC_ARGUMENT_ERROR);
  fc_dispatcher_free(dispatcher);
  fc_dispatcher_free(NULL);
  CHECK(fc_dispatcher_from_spec("{", "sm_90a", &dispatcher) == FC_SPEC_ERROR);
}

/* On the GPU of number 2, a Hopper of the driver that only records launches. */
static void chooses_among_a_bundle(const char* path) {
  fc_bundle* bundle = NULL;
  CHECK(fc_bundle_open(path, &bundle) == FC_OK);
  if (bundle == NULL) return;
  fc_dispatcher* dispatcher = NULL;
  CHECK(fc_dispatcher_from_bundle(bundle, "{\"head_dim\": 32}", "sm_90a", &dispatcher) == FC_OK);
  fc_bundle_free(bundle); /* the dispatcher keeps what it needs */
  if (dispatcher == NULL) return;
  static const int64_t lengths[2] = {LENGTH, 4096};
  for (int i = 0; i < 2; ++i) {
    const int64_t length = lengths[i];
    const fc_problems problems = {{1, 1}, {2, 2}, {length, length}, {length, length}};
    CHECK(fc_dispatcher_prepare(dispatcher, &problems, 2) == FC_OK);
    const fc_tensor one = view_of((void*)0x10000, length, 2), tensors[4] = {one, one, one, one};
    fc_scalar scale;
    scale.dtype = FC_F32;
    scale.value.f32 = 0.25f;
    CHECK(fc_dispatcher_launch(dispatcher, tensors, 4, &scale, 1, NULL) == FC_OK);
  }
  const void* cubins[2] = {NULL, NULL};
  size_t size = 0;
  CHECK(fc_kernel_cubin(kernel_for(dispatcher, LENGTH), &cubins[0], &size) == FC_OK);
  CHECK(fc_kernel_cubin(kernel_for(dispatcher, 4096), &cubins[1], &size) == FC_OK);
  CHECK(cubins[0] != cubins[1]);

  uint16_t data[COUNT] = {0};
  const fc_tensor tensors[4] = {view(data), view(data), view(data), view(data)};
  fc_scalar scale;
  scale.dtype = FC_F32;
  scale.value.f32 = 1;
  CHECK(fc_dispatcher_launch(dispatcher, tensors, 4, &scale, 1, NULL) == FC_DEVICE_ERROR);
  CHECK(strstr(fc_last_error()->why, "not run on the host") != NULL);
  fc_dispatcher_free(dispatcher);

  CHECK(fc_bundle_open(path, &bundle) == FC_OK);
  CHECK(fc_dispatcher_from_bundle(bundle, "{\"head_dim\": 64}", "sm_90a", &dispatcher) == FC_OK);
  const fc_problems any = {{1, 1}, {2, 2}, {1, 64}, {1, 64}};
  CHECK(fc_dispatcher_prepare(dispatcher, &any, FC_CPU) == FC_COMPILE_ERROR);
  CHECK(strstr(fc_last_error()->why, "the bundle has none") != NULL);
  fc_dispatcher_free(dispatcher);
  fc_bundle_free(bundle);
}

int main(int count, char** arguments) {
  CHECK(fc_abi_version() == FC_ABI_VERSION);
  CHECK(fc_last_error()->status == FC_OK);
  setenv("FLASHCORE_COMPILE", "forbid", 1);
  computes_attention();
  refuses_what_cannot_be();
  chooses_schedules();
  if (count > 2) chooses_among_a_bundle(arguments[2]);
  if (count > 1) reads_a_bundle(arguments[1]);
  printf("flashcore %s: %d failures\n", fc_version(), failures);
  return failures != 0;
}
