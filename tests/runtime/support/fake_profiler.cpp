// A profiler that NVTX opens (NVTX_INJECTION64_PATH): it prints the ranges that it is told of.
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

namespace {

int push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* range) {
  std::printf("begin %s\n", range->message.ascii);
  return 0;
}

int pop(nvtxDomainHandle_t /*domain*/) {
  std::printf("end\n");
  return 0;
}

nvtxDomainHandle_t create(const char* name) {
  std::printf("domain %s\n", name);
  static int domain;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

template <class Function>
void offer(NvtxFunctionTable table, unsigned index, Function* function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  offer(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  offer(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  offer(table, NVTX_CBID_CORE2_DomainCreateA, &create);
  return 1;
}
