# Run by cpack when the package is there: writes its archive anew, because cpack gives the members modes by the umask.
foreach(package IN LISTS CPACK_PACKAGE_FILES)
  set(members "${package}.members")
  file(MAKE_DIRECTORY "${members}")
  execute_process(COMMAND ar x "${package}" WORKING_DIRECTORY "${members}" COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE "${package}")
  # In this order, which dpkg wants.
  execute_process(COMMAND ar rcD "${package}" debian-binary control.tar.gz data.tar.gz
    WORKING_DIRECTORY "${members}" COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE "${members}")
endforeach()
