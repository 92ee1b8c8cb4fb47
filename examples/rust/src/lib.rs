//! Attention kernels of FlashCore: from a spec, or from a bundle, launched on a GPU or emulated.
mod ffi;

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr;

/// What happened, why, and what would work.
#[derive(Debug)]
pub struct Error {
    pub what: String,
    pub why: String,
    pub fix: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.fix)
    }
}

impl std::error::Error for Error {}

fn text(pointer: *const c_char) -> String {
    // SAFETY: the library's texts end in a zero and live as long as what they were asked of.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn checked(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: never null, and valid until this thread's next call.
    let error = unsafe { &*ffi::fc_last_error() };
    Err(Error { what: text(error.what), why: text(error.why), fix: text(error.fix) })
}

fn terminated(what: &str, given: &str) -> Result<CString, Error> {
    CString::new(given).map_err(|_| Error {
        what: what.into(),
        why: "it has a zero byte".into(),
        fix: "text without one".into(),
    })
}

/// Whether the library that was loaded is the one this crate was written for.
pub fn is_compatible() -> bool {
    // SAFETY: takes nothing.
    unsafe { ffi::fc_abi_version() == ffi::ABI_VERSION }
}

#[derive(Clone, Copy)]
pub enum DType {
    F16 = 0,
    Bf16 = 1,
    F32 = 2,
    I32 = 4,
}

/// An array that somebody else owns, dense, on a GPU or (device -1) in CPU memory.
#[repr(transparent)]
pub struct Tensor(ffi::Tensor);

impl Tensor {
    /// # Safety
    /// `data` has to lead to as many elements as the shape says, on that device, for as long as
    /// launches use it.
    pub unsafe fn dense(data: *mut c_void, dtype: DType, shape: &[i64], device: i32) -> Tensor {
        assert!(shape.len() <= ffi::MAX_RANK, "at most {} dimensions", ffi::MAX_RANK);
        let mut tensor = ffi::Tensor {
            data,
            dtype: dtype as i32,
            rank: shape.len() as i32,
            device,
            reserved: 0,
            shape: [0; ffi::MAX_RANK],
            strides: [0; ffi::MAX_RANK],
        };
        let mut stride = 1;
        for (dim, size) in shape.iter().enumerate().rev() {
            tensor.shape[dim] = *size;
            tensor.strides[dim] = stride;
            stride *= size;
        }
        Tensor(tensor)
    }
}

/// One kernel. May be used by several threads.
pub struct Kernel(*mut ffi::Kernel);

// SAFETY: flashcore.h says so.
unsafe impl Send for Kernel {}
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Attention for a spec as JSON, `{"head_dim": 64}`, and a target, `sm_90a`.
    pub fn from_spec(spec: &str, target: &str) -> Result<Kernel, Error> {
        let (spec, target) = (terminated("the spec", spec)?, terminated("the target", target)?);
        let mut kernel = ptr::null_mut();
        // SAFETY: texts end in a zero; the result is written when it succeeds.
        checked(unsafe {
            ffi::fc_kernel_from_spec(spec.as_ptr(), target.as_ptr(), ptr::null(), &mut kernel)
        })?;
        Ok(Kernel(kernel))
    }

    pub fn name(&self) -> String {
        text(unsafe { ffi::fc_kernel_name(self.0) })
    }

    pub fn target(&self) -> String {
        text(unsafe { ffi::fc_kernel_target(self.0) })
    }

    /// Queues the kernel on the default stream; arrays in CPU memory
    /// are computed before it returns. Tensors are q, k, v and the output, then what the spec adds.
    pub fn launch(&self, tensors: &[Tensor], scale: f32) -> Result<(), Error> {
        let scalar = ffi::Scalar { dtype: DType::F32 as i32, value: ffi::Number { f32: scale } };
        // SAFETY: a Tensor is an ffi::Tensor and nothing else, and vouches for its memory.
        checked(unsafe {
            ffi::fc_kernel_launch(
                self.0,
                tensors.as_ptr().cast(),
                tensors.len(),
                &scalar,
                1,
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: made by the library and freed once.
        unsafe { ffi::fc_kernel_free(self.0) }
    }
}

/// Many kernels in one file.
pub struct Bundle(*mut ffi::Bundle);

unsafe impl Send for Bundle {}
unsafe impl Sync for Bundle {}

impl Bundle {
    pub fn open(path: &str) -> Result<Bundle, Error> {
        let path = terminated("the path of a bundle", path)?;
        let mut bundle = ptr::null_mut();
        checked(unsafe { ffi::fc_bundle_open(path.as_ptr(), &mut bundle) })?;
        Ok(Bundle(bundle))
    }

    /// Keys of the kernels, by which `kernel` finds them.
    pub fn keys(&self) -> Result<Vec<String>, Error> {
        let count = unsafe { ffi::fc_bundle_count(self.0) };
        (0..count)
            .map(|index| {
                let mut entry = ffi::BundleEntry {
                    key: ptr::null(),
                    kernel: ptr::null(),
                    target: ptr::null(),
                    bytes: 0,
                };
                checked(unsafe { ffi::fc_bundle_entry_at(self.0, index, &mut entry) })?;
                Ok(text(entry.key))
            })
            .collect()
    }

    /// A kernel from the bundle alone: no compiler is needed.
    pub fn kernel(&self, key: &str) -> Result<Kernel, Error> {
        let key = terminated("the key of a kernel", key)?;
        let mut kernel = ptr::null_mut();
        checked(unsafe { ffi::fc_kernel_from_bundle(self.0, key.as_ptr(), &mut kernel) })?;
        Ok(Kernel(kernel))
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        unsafe { ffi::fc_bundle_free(self.0) }
    }
}
