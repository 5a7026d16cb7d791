import { type Configuration, createProcessContext, createRunning, type Output, type Service } from '../serve.ts';

/** Works with each configured service, assembled but not served. @returns the results, by service */
export async function withServices<T>(
  configuration: Configuration, output: Output, work: (service: Service, name: string) => Promise<T>,
): Promise<ReadonlyMap<string, T>> {
  const context = await createProcessContext(configuration, output);
  const results = new Map<string, T>();
  for (const service of configuration.services.map((one) => createRunning(one, context))) {
    results.set(service.name, await service.load().then((loaded) => work(loaded, service.name)).finally(service.stop));
  }
  return results;
}
