// The primitives that make threads meet or that touch shared memory, for reports and messages.
#pragma once

#include <cstdint>

namespace flashcore {

enum class Primitive : std::uint8_t {
  barrier,
  shuffle_xor,
  load_matrices,
  load_matrices_transposed,
  store_matrices,
  multiply_f16,
  multiply_bf16,
  multiply_tf32,
  load_shared,
  store_shared,
  copy_async,
  load_block,
  store_block,
  multiply_blocks,
  wait_phase,
  meet,
  signal,
  fence_products,
  multiply_warpgroup,
  commit_products,
  wait_products,
  shrink_registers,
  grow_registers,
  uniform,
  wait_turn,
  sync_warp,
};

constexpr int primitive_count = 26;

constexpr const char* name_of(Primitive primitive) {
  switch (primitive) {
    case Primitive::barrier:
      return "barrier";
    case Primitive::shuffle_xor:
      return "shuffle_xor";
    case Primitive::load_matrices:
      return "load_matrices";
    case Primitive::load_matrices_transposed:
      return "load_matrices_transposed";
    case Primitive::store_matrices:
      return "store_matrices";
    case Primitive::multiply_f16:
      return "multiply<f16>";
    case Primitive::multiply_bf16:
      return "multiply<bf16>";
    case Primitive::multiply_tf32:
      return "multiply_tf32";
    case Primitive::load_shared:
      return "load_shared";
    case Primitive::store_shared:
      return "store_shared";
    case Primitive::copy_async:
      return "copy_async";
    case Primitive::load_block:
      return "load_block";
    case Primitive::store_block:
      return "store_block";
    case Primitive::multiply_blocks:
      return "multiply_blocks";
    case Primitive::wait_phase:
      return "wait_phase";
    case Primitive::meet:
      return "meet";
    case Primitive::signal:
      return "signal";
    case Primitive::fence_products:
      return "fence_products";
    case Primitive::multiply_warpgroup:
      return "multiply_warpgroup";
    case Primitive::commit_products:
      return "commit_products";
    case Primitive::wait_products:
      return "wait_products";
    case Primitive::shrink_registers:
      return "shrink_registers";
    case Primitive::grow_registers:
      return "grow_registers";
    case Primitive::uniform:
      return "uniform";
    case Primitive::wait_turn:
      return "wait_turn";
    case Primitive::sync_warp:
      return "sync_warp";
  }
  return "?";
}

}  // namespace flashcore
