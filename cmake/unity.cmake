# The preset release compiles several files as one (CMAKE_UNITY_BUILD): what they all include, and the templates
# that they all instantiate, are compiled once for all of them.
#
# Two files may then have the same name in their anonymous namespaces, which the compiler reports as a
# redefinition or as an ambiguous call. One of the two files belongs into this list: it is compiled alone.
set(FLASHCORE_ALONE
    codegen/instructions/mma_m16n8k8_tf32.cpp
    codegen/instructions/wgmma.cpp
    codegen/instructions/wmma.cpp
    codegen/passes/bound_masks.cpp
    codegen/passes/precise_tanh.cpp
    codegen/schedule_checks.cpp
    dsl/expression_writer.cpp
    dsl/ir/affine.cpp
    dsl/probes.cpp
    python/src/expressions.cpp
    python/src/programs.cpp
    runtime/bundle/signers.cpp
    runtime/cache/envelope.cpp
    runtime/cache/stored_kernel.cpp
    runtime/cache/trusted_file.cpp
    runtime/emulator/clocked_memory.cpp
    runtime/emulator/mbarriers.cpp
    runtime/emulator/named_barriers.cpp
    runtime/emulator/shared_memory.cpp
    runtime/emulator/tensor_core.cpp
    runtime/emulator/warpgroup_products.cpp
    runtime/log.cpp
    runtime/no_fork.cpp
    runtime/tensor_maps.cpp
    templates/attention_decode.cpp
    templates/choice/cost_coefficients.cpp
    templates/choice/decode_splits.cpp
    templates/choice/expression_traits.cpp
    templates/decode_choice.cpp
    templates/schedules/attention_schedules.cpp
    templates/schedules/fitting_schedules.cpp
    templates/schedules/hopper_candidates.cpp
    templates/schedules/register_demand.cpp
    tests/codegen/names_test.cpp
    tests/codegen/programs_test.cpp
    tests/codegen/support/programs.cpp
    tests/codegen/tanh_accuracy_test.cpp
    tests/codegen/warpgroup_refusals_test.cpp
    tests/dsl/ir/verify_test.cpp
    tests/runtime/bundle/bundle_test.cpp
    tests/runtime/bundle/signers_test.cpp
    tests/runtime/cache/system_call_faults_test.cpp
    tests/runtime/emulator/box_copies_test.cpp
    tests/runtime/emulator/cluster_test.cpp
    tests/runtime/emulator/mbarriers_test.cpp
    tests/runtime/emulator/module_test.cpp
    tests/runtime/emulator/ragged_accumulation_test.cpp
    tests/runtime/emulator/shared_memory_test.cpp
    tests/runtime/emulator/support/sm90_kernels.cpp
    tests/runtime/emulator/warpgroup_attention_test.cpp
    tests/runtime/emulator/warpgroup_products_test.cpp
    tests/runtime/reference/attention_test.cpp
    tests/runtime/reference/formats_test.cpp
    tests/runtime/reference/pass_meaning_test.cpp
    tests/templates/backward_test.cpp
    tests/templates/decode_test.cpp
    tests/templates/property_test.cpp
    tests/templates/random_expressions_test.cpp
    tests/templates/scan_test.cpp
    tests/templates/schedules/shipped_expressions_test.cpp
    tests/templates/split_products_test.cpp
    tests/templates/support/decode_run.cpp
    tests/templates/variants_test.cpp
)

# flashcore_alone(<source>...), relative to the current folder, in the function that makes their target.
function(flashcore_alone)
  foreach(source IN LISTS ARGN)
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
    if(path IN_LIST FLASHCORE_ALONE)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
