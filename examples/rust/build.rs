//! Links libflashcore.so, from FLASHCORE_LIBRARY_DIR or where the linker looks.
fn main() {
    println!("cargo:rerun-if-env-changed=FLASHCORE_LIBRARY_DIR");
    if let Ok(folder) = std::env::var("FLASHCORE_LIBRARY_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    println!("cargo:rustc-link-lib=dylib=flashcore");
}
