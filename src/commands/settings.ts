import { parseUrl } from '../db/url.ts';
import { ConfigurationError, ENVIRONMENT, readShared, serviceReader, type ServiceSettings } from '../settings.ts';
import { Findings, readVariables, type Values, type Variables } from '../runtime/variables.ts';

/** Reads the settings of one service for a command. @throws ConfigurationError with every problem at once */
export function readServiceSettings<V extends Variables, S>(name: string, module: ServiceSettings<V, S>): S {
  const findings = new Findings();
  const shared = readShared(ENVIRONMENT, parseUrl, findings);
  const common = { shared, parseUrl, purpose: 'administer', isAlone: true, foreign: {}, findings } as const;
  const { use } = serviceReader(name, module, (settings) => settings).read(ENVIRONMENT, common);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  return use;
}

/** Reads these variables alone. @throws ConfigurationError */
export function readTable<V extends Variables>(variables: V): Values<V> {
  const findings = new Findings();
  const values = readVariables(variables, ENVIRONMENT, findings);
  if (findings.problems.length > 0) throw new ConfigurationError(findings.problems);
  return values;
}
