// As far as the page uses it.
export const useState: <T>(first: T | (() => T)) => [T, (next: T | ((before: T) => T)) => void];
export const useEffect: (run: () => void | (() => void), inputs?: readonly unknown[]) => void;
export const useLayoutEffect: typeof useEffect;
export const useRef: <T>(first: T) => { current: T };
export const useMemo: <T>(make: () => T, inputs?: readonly unknown[]) => T;
export const useCallback: <T>(call: T, inputs?: readonly unknown[]) => T;
export const useReducer: <S, A>(step: (state: S, action: A) => S, first: S) => [S, (action: A) => void];
