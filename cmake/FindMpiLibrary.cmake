# Defines MpiLibrary::mpi: the C API of MPI, for C++. A project that also enables Fortran or C needs no MPI for these.
# CMake's own module also defines MPIEXEC_EXECUTABLE.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MpiLibrary REQUIRED_VARS MPI_CXX_FOUND VERSION_VAR MPI_CXX_VERSION)

if(MpiLibrary_FOUND AND NOT TARGET MpiLibrary::mpi)
  add_library(MpiLibrary::mpi INTERFACE IMPORTED)
  set_target_properties(MpiLibrary::mpi PROPERTIES INTERFACE_LINK_LIBRARIES MPI::MPI_CXX)
endif()
