/* A CUDA driver that takes every address for memory of GPU 3, and can do nothing else. */
int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  (void)address;
  *(int*)value = attribute == 2 ? 2 : 3; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE: device; else the device's number */
  return 0;
}
