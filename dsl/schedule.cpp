#include "dsl/schedule.h"

namespace flashcore {

std::string_view name_of(CopyInstruction copy) {
  switch (copy) {
    case CopyInstruction::cp_async:
      return "cp_async";
    case CopyInstruction::vector:
      return "vector";
    case CopyInstruction::tma:
      return "tma";
  }
  return "?";
}

std::string_view name_of(Softmax softmax) {
  switch (softmax) {
    case Softmax::registers:
      return "registers";
    case Softmax::shared:
      return "shared";
  }
  return "?";
}

std::string_view name_of(ProductSplit split) {
  switch (split) {
    case ProductSplit::terms:
      return "terms";
    case ProductSplit::columns:
      return "columns";
  }
  return "?";
}

std::string_view name_of(GridOrder order) {
  switch (order) {
    case GridOrder::tiles_first:
      return "tiles_first";
    case GridOrder::tiles_last:
      return "tiles_last";
    case GridOrder::grouped:
      return "grouped";
  }
  return "?";
}

std::string_view name_of(PersistentScheduler order) {
  switch (order) {
    case PersistentScheduler::serpentine:
      return "serpentine";
    case PersistentScheduler::dynamic:
      return "dynamic";
  }
  return "?";
}

}  // namespace flashcore
