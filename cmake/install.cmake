# Installs the headers, the CMake package with its components, and a pkg-config module for each.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/lockstep")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" TYPE INCLUDE FILES_MATCHING PATTERN "*.[hi]pp")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" TYPE DOC)

if(Nvidia_FOUND)
  list(TRANSFORM nvidia_folders PREPEND "-isystem " OUTPUT_VARIABLE nvidia_cflags)
  list(JOIN nvidia_cflags " " nvidia_cflags)
endif()
foreach(component IN LISTS lockstep_components)
  install(TARGETS lockstep_${component} EXPORT lockstep_${component})
  install(EXPORT lockstep_${component} NAMESPACE lockstep:: DESTINATION "${package_dir}"
          FILE lockstep-${component}-targets.cmake)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep-${component}.pc.in"
                 "${PROJECT_BINARY_DIR}/lockstep-${component}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/lockstep-${component}.pc"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
endforeach()

write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstep-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/lockstep-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/lockstep-config.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/components.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindAsio.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindGomp.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindNvidia.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindRapidJSON.cmake"
        DESTINATION "${package_dir}")
