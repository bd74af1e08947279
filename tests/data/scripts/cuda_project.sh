#!/bin/sh
# shellcheck disable=SC1090,SC2086  # $ENVIRONMENT is a file that the role made
set -e
apt-get -qq update
apt-get -qq -y --no-install-recommends install cmake ninja-build > /dev/null
rm -rf /srv/project && mkdir /srv/project && cd /srv/project
cat > CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.18)
project(project LANGUAGES CXX CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(backend SHARED backend.cu)
target_link_libraries(backend PRIVATE CUDA::cudart CUDA::cublas CUDA::cuda_driver)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE backend)
END
cat > backend.cu <<'END'
#include <cublas_v2.h>
#include <cuda.h>
__global__ void kernel(float *one) { *one = 1; }
int backend(bool with_gpu) {
  cublasHandle_t handle;
  if (with_gpu) { kernel<<<1, 1>>>(nullptr); cublasCreate(&handle); }
  return cuInit(0) == CUDA_ERROR_STUB_LIBRARY ? cuMemCreate(nullptr, 0, nullptr, 0) : 1;
}
END
echo 'int backend(bool); int main() { return backend(false); }' > program.cpp
set -a; . "$ENVIRONMENT"; set +a
cmake -G Ninja -B build -DCMAKE_CUDA_ARCHITECTURES=90 .
ninja -C build
readelf -d build/libbackend.so | grep NEEDED
export LD_LIBRARY_PATH=$CUDA_HOME/lib64:$CUDA_HOME/lib64/stubs
rc=0; build/program || rc=$?
echo "the stub answers $rc"
