# `cmake --install` gives the program, the library and find_package(tandem), whose target tandem::tandem is everything
# a model of one's own needs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(layers base optimizers store config convert cluster ir models compile comm runtime kernels_cpu kernels_cuda text data checkpoint hub http metrics watch train plan launch doctor chaos dash pipeline cli)
add_library(tandem_library INTERFACE)
set_target_properties(tandem_library PROPERTIES EXPORT_NAME tandem)
list(TRANSFORM layers PREPEND tandem_ OUTPUT_VARIABLE layer_targets)
target_link_libraries(tandem_library INTERFACE tandem_cli tandem_train tandem_kernels_cpu tandem_kernels_cuda)

install(TARGETS tandem_library ${layer_targets} EXPORT tandemTargets)
install(TARGETS tandem)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE PATTERN "cli" EXCLUDE
  PATTERN "*_test.h" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/tandem/cli/command_line.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tandem/cli)
install(EXPORT tandemTargets NAMESPACE tandem:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tandemConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tandemConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandemConfig.cmake ${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
