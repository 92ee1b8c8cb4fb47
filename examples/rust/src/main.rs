//! Causal attention of bf16 arrays in CPU memory, held against f64, and the kernels of a bundle.
//!
//!     FLASHCORE_LIBRARY_DIR=build/release/c cargo run --release -- kernels.fcb
use flashcore::{is_compatible, Bundle, DType, Error, Kernel, Tensor};

const HEADS: usize = 2;
const LENGTH: usize = 45;
const DIM: usize = 32;

fn to_bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

fn from_bf16(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

fn largest_error() -> Result<f64, Error> {
    let numbers = |step: usize, most: usize| -> Vec<u16> {
        let half = (most / 2) as f32;
        let count = HEADS * LENGTH * DIM;
        (0..count).map(|i| to_bf16(((i * step % most) as f32 - half) / 4.0)).collect()
    };
    let (mut q, mut k, mut v) = (numbers(7, 13), numbers(5, 11), numbers(3, 17));
    let mut out = vec![0x7fc0_u16; q.len()];
    let kernel = Kernel::from_spec(r#"{"head_dim": 32, "mask": {"text": "kv_idx <= q_idx"}}"#, "sm_80")?;
    let shape = [1, HEADS as i64, LENGTH as i64, DIM as i64];
    let tensors = [&mut q, &mut k, &mut v, &mut out]
        // SAFETY: the arrays outlive the launch, which is over when it returns.
        .map(|array| unsafe { Tensor::dense(array.as_mut_ptr().cast(), DType::Bf16, &shape, -1) });
    kernel.launch(&tensors, 0.25)?;

    let mut worst: f64 = 0.0;
    let at = |array: &[u16], head: usize, row: usize, d: usize| {
        from_bf16(array[(head * LENGTH + row) * DIM + d])
    };
    for head in 0..HEADS {
        for row in 0..LENGTH {
            let weights: Vec<f64> = (0..=row)
                .map(|key| {
                    let score: f64 =
                        (0..DIM).map(|d| at(&q, head, row, d) * at(&k, head, key, d)).sum();
                    (score * 0.25).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..DIM {
                let expected: f64 =
                    weights.iter().enumerate().map(|(key, w)| w / sum * at(&v, head, key, d)).sum();
                worst = worst.max((expected - at(&out, head, row, d)).abs());
            }
        }
    }
    Ok(worst)
}

fn main() -> Result<(), Error> {
    assert!(is_compatible(), "another libflashcore.so than this crate was written for");
    println!("largest error {:.4}", largest_error()?);
    if let Some(path) = std::env::args().nth(1) {
        let bundle = Bundle::open(&path)?;
        let keys = bundle.keys()?;
        for key in &keys {
            let kernel = bundle.kernel(key)?;
            println!("{} for {}", kernel.name(), kernel.target());
        }
        println!("kernels of the bundle: {}", keys.len());
    }
    Ok(())
}
