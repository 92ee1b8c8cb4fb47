//! flashcore.h, as far as this crate needs it.
use std::os::raw::{c_char, c_int, c_void};

pub const ABI_VERSION: c_int = 1;
pub const MAX_RANK: usize = 5;

#[repr(C)]
pub struct Error {
    pub status: c_int,
    pub what: *const c_char,
    pub why: *const c_char,
    pub fix: *const c_char,
    pub file: *const c_char,
    pub line: i32,
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub dtype: i32,
    pub rank: i32,
    pub device: i32,
    pub reserved: i32,
    pub shape: [i64; MAX_RANK],
    pub strides: [i64; MAX_RANK],
}

#[repr(C)]
pub union Number {
    pub f32: f32,
    pub i32: i32,
}

#[repr(C)]
pub struct Scalar {
    pub dtype: i32,
    pub value: Number,
}

#[repr(C)]
pub struct BundleEntry {
    pub key: *const c_char,
    pub kernel: *const c_char,
    pub target: *const c_char,
    pub bytes: u64,
}

#[repr(C)]
pub struct Kernel {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Bundle {
    _private: [u8; 0],
}

extern "C" {
    pub fn fc_abi_version() -> c_int;
    pub fn fc_last_error() -> *const Error;
    pub fn fc_kernel_from_spec(
        spec: *const c_char,
        target: *const c_char,
        schedule: *const c_char,
        kernel: *mut *mut Kernel,
    ) -> c_int;
    pub fn fc_kernel_from_bundle(
        bundle: *const Bundle,
        key: *const c_char,
        kernel: *mut *mut Kernel,
    ) -> c_int;
    pub fn fc_kernel_free(kernel: *mut Kernel);
    pub fn fc_kernel_name(kernel: *const Kernel) -> *const c_char;
    pub fn fc_kernel_target(kernel: *const Kernel) -> *const c_char;
    pub fn fc_kernel_launch(
        kernel: *mut Kernel,
        tensors: *const Tensor,
        tensor_count: usize,
        scalars: *const Scalar,
        scalar_count: usize,
        stream: *mut c_void,
    ) -> c_int;
    pub fn fc_bundle_open(path: *const c_char, bundle: *mut *mut Bundle) -> c_int;
    pub fn fc_bundle_free(bundle: *mut Bundle);
    pub fn fc_bundle_count(bundle: *const Bundle) -> usize;
    pub fn fc_bundle_entry_at(
        bundle: *const Bundle,
        index: usize,
        entry: *mut BundleEntry,
    ) -> c_int;
}
